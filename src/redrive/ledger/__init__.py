"""The ledger: accounts of whole numbers, moved by postings that add up to zero.

Every process loads this module. What it names by text is loaded by whoever needs it. Other features move money by
``redrive.ledger.movements``.
"""

from redrive.feature import Feature, Need
from redrive.ledger.at_risk import ALERTS, examine
from redrive.ledger.settings import LedgerSettings

LEDGER = Feature(
    "ledger",
    __name__,
    about="Accounts and money: open, credit, adjust, statements, and the proof that it adds up.",
    services={"ledger": "redrive.ledger.application:AppLedger"},
    routes="redrive.ledger.routes:router",
    commands="redrive.ledger.commands:cli",
    pages="redrive.ledger.pages:pages",
    settings=LedgerSettings,
    examine=examine,
    alerts=ALERTS,
    metrics="redrive.ledger.metrics:metrics",
    needs=(Need.LEDGER,),
)
__all__ = ["LEDGER"]
