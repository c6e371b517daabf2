"""The experiments, a file each, and all of them by number."""

from collections.abc import Mapping

from redrive_kit.labs.experiments.daemon import DAEMON
from redrive_kit.labs.experiments.deterministic_error import DETERMINISTIC_ERROR
from redrive_kit.labs.experiments.killed_worker import KILLED_WORKER
from redrive_kit.labs.experiments.long_outage import LONG_OUTAGE
from redrive_kit.labs.experiments.replay import REPLAY
from redrive_kit.labs.experiments.sink_down import SINK_DOWN
from redrive_kit.labs.lab_run import Experiment

_ALL = (KILLED_WORKER, SINK_DOWN, DETERMINISTIC_ERROR, LONG_OUTAGE, REPLAY, DAEMON)
LABS: Mapping[int, Experiment] = {one.number: one for one in _ALL}
