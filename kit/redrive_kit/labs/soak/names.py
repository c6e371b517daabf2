"""Names of a soak, by which what it makes in a store is told from everything else."""

QUEUE = "soak"
PROJECTION = "soak"
PLAIN, FLAKY, FAILING, BOOKED = "SOAK_PLAIN", "SOAK_FLAKY", "SOAK_FAILING", "SOAK_BOOKED"
KINDS = (PLAIN, FLAKY, FAILING, BOOKED)
ENTITY = "soak"
BOOKING_TABLE = "redrive_soak_booking"
FAILS_AFTER = 2  # attempts of those that fail on purpose
MANY = 10_000  # of the others: a soak may cost them many (a killed worker, a cut connection), and none may be the last
