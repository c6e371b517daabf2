"""The commands there are: where each one is, what it does in a line, and examples of it.

Nothing is imported for it: the page of all commands is shown without loading any. A test compares it with what the
commands say themselves."""

from __future__ import annotations

ABOUT = "Durable background tasks whose failures can be found, explained and replayed."
EPILOG = (
    "Exit codes: 0 done · 1 refused or failed (the message says why) · 2 wrong usage or value "
    "· 3 the store cannot be reached · 130 interrupted. "
    "With --json, stdout is one JSON document and errors are JSON on stderr."
)
VERSION_HELP = "Show the version, as the command version does."
HELP_OPTIONS = ["-h", "--help"]

# Those of redrive-kit, which may not be installed: "module:attribute" wherever it is.
KIT_COMMANDS: dict[str, tuple[str, str]] = {
    "simulate": (
        "redrive_kit.simulators.command:simulate_cli",
        "Somebody else, for demonstrations and tests: a provider of remote jobs.",
    ),
    "lab": (
        "redrive_kit.labs.commands:lab",
        "Experiments that anyone can repeat: workers are killed, sinks are stopped, what must be seen is asserted.",
    ),
    "soak": (
        "redrive_kit.labs.soak.command:soak",
        "A mixed load with faults for some minutes; the invariants are checked all the time.",
    ),
}
# By the panel they stand in: "module:attribute" in redrive.cli.commands, and the first sentence of what each says.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "up": (
            "up:up",
            "Everything in one process: brings the store up to date, runs a worker with 10 slots (or as many as TASK_WORKER_CONCURRENCY or --concurrency say), serves HTTP.",
        ),
        "work": ("work:work", "Run tasks until stopped."),
        "migrate": ("migrate:migrate", "Bring the store's schema up to date; of several connections, all."),
        "deploy": (
            "deploy:deploy_cli",
            "Files for deployment and monitoring, printed: supervisor, systemd, kubernetes, compose, grafana, prometheus.",
        ),
    },
    "Look": {
        "list": ("list:list_tasks", "Tasks, newest first, each with the one thing worth knowing about it."),
        "show": (
            "show:show",
            "One task: its state, payload and timeline of attempts, dead letters and operators' actions.",
        ),
        "why": (
            "why:why",
            "Why a task does not run, the strongest reason first, and what to do about it; redrive show tells the rest.",
        ),
        "failed": ("failed:failed", "Tasks that are failed now, the latest first."),
        "stats": (
            "stats:stats",
            "Totals by queue and kind, pauses, limits, workers, causes of failure, schedules; or how things went.",
        ),
        "queues": ("fleet:queues", "Queues by name, with what is in them and who serves them."),
        "kinds": ("fleet:kinds", "Kinds by name, with their tasks, limits and pauses."),
        "doctor": (
            "doctor:doctor",
            "Look at workers, queues, leases, failures and the store itself; say what is wrong and how to mend it.",
        ),
        "alerts": ("alerts:alerts_cli", "Alerts: what fires, silence, unsilence, test."),
        "slo": (
            "alerts:slo",
            "Service levels: which share of a queue's tasks started in time, how much of the error budget is left, and how fast it goes.",
        ),
        "smoke": (
            "smoke:smoke",
            "Check a running instance from end to end, through its API and through this command line, which finds the store by --url or --app.",
        ),
        "settings": (
            "settings:settings",
            "Every setting as it is in effect here, with where it comes from: environment, file, given in code, or default; also those of the application's features.",
        ),
        "version": ("version:version", "Which redrive this is, on which Python and SQLite."),
    },
    "Act": {
        "enqueue": ("enqueue:enqueue", "Enqueue one task."),
        "retry": (
            "retry:retry",
            "Run failed or cancelled tasks again, with fresh attempts: by id, or as a bulk operation all that match.",
        ),
        "replay": (
            "retry:replay",
            "Retry what matches here and now, up to a limit: failed tasks, the first failure first, then cancelled ones.",
        ),
        "cancel": ("retry:cancel", "Cancel waiting tasks now, and ask running ones to stop."),
        "forget": (
            "retry:forget",
            "Give failed tasks up: they leave the list of failures for history, from where they can still be retried.",
        ),
        "flush": ("retry:flush", "Give all failures up, once a second operator agrees."),
        "purge": ("retry:purge", "Give waiting tasks up (queued, delayed, paused), once a second operator agrees."),
        "pause": (
            "pause:pause",
            "Stop claiming tasks of a queue, kind or group, or single waiting tasks; or leave out the runs of a schedule.",
        ),
        "resume": ("pause:resume", "Let a paused queue, kind, group, schedule or task run again."),
        "erase": (
            "erase:erase",
            "Remove personal data of a scope or a task for good: payloads, results, messages, stacks, keys, labels, and what the audit log and its archive say about it.",
        ),
        "limits": ("limits:limits", "Limits of kinds, across all workers: list them, or change one from now on."),
        "drill": (
            "drill:drill",
            "Make a failure, find it through the API and the command line, retry it, verify state, effect and audit, and write the record.",
        ),
    },
    "Operate": {
        "causes": ("causes:causes_cli", "Failures by cause: list, show, note, mute, resolve, retry."),
        "operations": (
            "operations:operations_cli",
            "Bulk operations: list, show, watch, pause, resume, cancel, put-back.",
        ),
        "approvals": ("approvals:approvals_cli", "What waits for a second operator: list, approve, reject."),
        "audit": ("audit:audit_cli", "Who did what: list, export, prune, verify, search."),
        "schedules": ("fleet:schedules_cli", "Periodic tasks: list them, run one now, pause and resume one."),
        "workers": ("fleet:workers_cli", "Workers: list them, have them end."),
        "circuits": ("fleet:circuits_cli", "Circuits: list them, open, close or probe one."),
        "providers": ("providers:providers_cli", "Providers of remote jobs: list them, try one out."),
        "tokens": ("tokens:tokens_cli", "Access tokens of the HTTP API: list, create, revoke."),
    },
    "Try out (redrive-kit)": KIT_COMMANDS,
}
# Of the features that come with redrive, as they say it themselves.
FEATURES = {
    "ledger": "Accounts and money: open, credit, adjust, reverse, statements, and the proof that it adds up.",
    "webhooks": "Webhooks: customers' endpoints, their secrets, deliveries, and sending events.",
    "batch": "Work that belongs together: create, list, show, watch, items, cancel, retry what failed.",
    "outbox": "A search index that follows the database: projections, their events and sinks.",
}
# What serves until it is stopped, and says in its log what others say on stderr.
SERVING = (["work"], ["up"], ["outbox", "work"])
# Former names: they work, and are not listed.
HIDDEN = {"groups": "causes:causes_cli"}

EXAMPLES: dict[str, list[str]] = {
    "up": ["redrive up --app reports:app", "redrive up --url sqlite:///try.db --port 0"],
    "work": [
        "redrive work --app reports:app --queue high,default --concurrency 10",
        "redrive work --app reports:app --stop-when-empty",
        "redrive work --group reports --processes 4",
    ],
    "migrate": [
        "redrive migrate --url postgresql://user@host/database",
        "redrive migrate --status",
        "redrive migrate --down --to 1",
    ],
    "deploy": [
        "redrive deploy supervisor --user shop > /etc/supervisor/conf.d/redrive.conf",
        "redrive deploy systemd --user shop --into /etc/systemd/system",
        "redrive deploy kubernetes --image registry/shop:1.2 | kubectl apply -f -",
        "redrive deploy compose --image shop > compose.yaml",
        "redrive deploy grafana > redrive-dashboard.json",
        "redrive deploy prometheus > redrive-rules.yml",
    ],
    "simulate": [
        "redrive simulate provider --duration 5 --failures timeout=0.1,param_error=0.05",
        "redrive simulate provider --port 9000 --rate 20 --down-for 30",
    ],
    "lab": ["redrive lab 1", "redrive lab all --quick -j 6", "redrive lab 3 --url postgresql://user@host/database"],
    "soak": ["redrive soak --minutes 2", "redrive soak --url postgresql://user@host/database --rate 200"],
    "list": ["redrive list --state failed,running --kind BUILD_REPORT --limit 20"],
    "show": ["redrive show 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --stack"],
    "why": ["redrive why 0197f0c2-8d1e-7c3a"],
    "stats": ["redrive stats --causes 20", "redrive stats --json"],
    "queues": ["redrive queues --json"],
    "kinds": ["redrive kinds --limit 20"],
    "settings": ["redrive settings --changed", "redrive settings --app reports:app --json"],
    "version": ["redrive version --json"],
    "enqueue": [
        """redrive enqueue --app reports:app BUILD_REPORT '{"month": "2026-10"}' --key report-2026-10""",
        "redrive enqueue --url sqlite:///reports.db BUILD_REPORT --payload-file report.json --delay 60",
    ],
    "failed": ["redrive failed --kind BUILD_REPORT --limit 20", "redrive failed --stats"],
    "retry": [
        "redrive retry 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --reason 'the bucket exists now'",
        "redrive retry --kind BUILD_REPORT --error-code TASK_EXECUTION_FAILED --canary 10 --rate 50 --wait",
        "redrive retry --all --dry-run",
    ],
    "replay": ["redrive replay --kind BUILD_REPORT --limit 200 --by ann --reason 'the bucket exists now'"],
    "forget": ["redrive forget 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --reason 'ordered twice'"],
    "flush": [
        "redrive flush --fixed 'the old bucket is gone' --not-idempotent --reason 'all of the old system'",
        "redrive flush --dry-run",
    ],
    "purge": ["redrive purge --queue reports --dry-run"],
    "doctor": ["redrive doctor", "redrive doctor --queue reports --json"],
    "alerts": [
        "redrive alerts",
        "redrive alerts silence failed --queue reports --for 8h --reason 'the warehouse moves'",
        "redrive alerts unsilence failed --queue reports",
    ],
    "slo": ["redrive slo", "redrive slo --json"],
    "smoke": ["redrive smoke http://127.0.0.1:8321"],
    "drill": ["redrive drill --by ann --out drill.md", "redrive drill --history"],
    "limits": ["redrive limits", "redrive limits BUILD_REPORT --concurrency 2"],
    "causes": [
        "redrive causes",
        "redrive causes resolve 5f1c… --reason 'deployed the fix'",
        "redrive causes retry 5f1c… --canary 10",
    ],
    "operations": ["redrive operations", "redrive operations watch 0197f0c2-…"],
    "approvals": ["redrive approvals --pending", "redrive approvals approve 0197f0c2-… --by bob"],
    "erase": [
        "redrive erase --scope user:4711 --dry-run",
        "redrive erase --task 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --reason 'ticket 812' --by ann",
    ],
    "audit": [
        "redrive audit --actor ann",
        "redrive audit export audit.csv",
        "redrive audit prune --older-than-days 90 --dry-run",
    ],
    "providers": [
        "redrive providers",
        """redrive providers try video '{"text": "a cat"}' --wait 120""",
    ],
    "tokens": ["redrive tokens create ann --role operator --days 90", "redrive tokens revoke 1a2b3c4d5e6f"],
    "cancel": ["redrive cancel 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --by ann --reason 'ordered twice'"],
    "pause": [
        "redrive pause --kind BUILD_REPORT --reason 'the printer is on fire'",
        "redrive pause 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b",
    ],
    "resume": ["redrive resume --kind BUILD_REPORT"],
    "workers": ["redrive workers", "redrive workers drain --all --reason 'a new machine'"],
    "circuits": ["redrive circuits", "redrive circuits close stripe --reason 'they say that it is mended'"],
    "schedules": ["redrive schedules", "redrive schedules run nightly --reason 'the night was too short'"],
}
