"""Words of error messages that say nothing about anybody's data: those of Python, of well-known libraries and ours.

A viewer sees a word of a message only if it stands here, or in the source of the functions that the exception came
through. So no names, no places, nothing that could be somebody's password: only words that messages are built of, and
none that answers a question about somebody ("positive")."""

from __future__ import annotations

_FAILURES = """
    abort aborted absent already bad blocked broken busy cannot closed conflict conflicting conflicts corrupt
    corrupted crash crashed deadlock declined denied died disabled disallowed disconnected down dropped duplicate
    duplicated error errors exceed exceeded exceeding exceeds exhausted expired fail failed failing fails failure
    failures fatal forbidden gone hung illegal improperly inactive inappropriate incompatible incomplete
    inconsistent incorrect insufficient interrupted invalid killed late limit limited locked lost malformed mismatch
    missing must never no nonexistent not nothing offline overload overloaded prohibited refused refuses rejected
    required restricted revoked stale stolen stopped suspended terminated throttled timeout too truncated unable
    unauthorized unavailable unexpected unexpectedly unfinished unknown unprocessable unreachable unreadable
    unrecognized unregistered unresolved unsuccessful unsupported unterminated violated violates violation without
    wrong
"""
_OTHERS = """
    a aborting about accept accepted access accessible account acknowledged acquire acquired action active actually
    adapter additional address after again against ahead aiohttp alive all allocate allocated allocation allow
    allowed also always ambiguous amount an and another answer answered any api app application applied apply are
    argument arguments array as assert assertion assigned async asynchronous asyncio asyncpg at attempt attempted
    attempting attempts attribute authenticate authenticated authentication authority authorization authorized auto
    available await awaited awaiting backend base batch be because become been before began begin being between
    beyond binary bind blob block body bool boolean both boto botocore bound boundary bounds broker bucket buffer
    build but by byte bytes cache call callable callback called calling calls can cancel canceled canceling
    cancellation cancelled cancelling capacity card certificate chain changed channel char character characters
    charset check checked checksum child choice choices chunk circuit circular class cleanup client clock close
    closing cluster code codec column columns command commands commit committed communication compare compatible
    complete completed compressed compression concurrent condition config configuration configured connect connected
    connecting connection connections consistent constraint consumer contain contained contains content context
    continue conversion convert converted coroutine could count create created creating credentials current
    currently cursor cycle daemon data database databases date datetime day days deadline decimal decode decoded
    decoder decoding decompress default defined delay delayed delete deleted dependency deprecated descriptor
    deserialize destination detail details detected device dict dictionary did different digest digit digits
    dimension directory disconnect disk display division django do document documents does domain done driver drop
    due duration during each eai early econnrefused econnreset ehostunreach either elasticsearch element elements
    else empty enabled encode encoded encoder encoding encountered encrypted encryption end ended endpoint
    enetunreach engine enotfound enough ensure entity entries entry enum environment eof epipe equal errno escape
    establish established etimedout event ever every exact exactly except exception exceptions exclusive exec
    execute executed executing execution executor exist existing exists exit exited expect expected expecting
    expects expiration expire expires explicit expression extension external extra false fetch fetched fetching few
    field fields file filename files filesystem filter final find finish finished finite first fixed flag float
    follow following for foreign format formatted found frame free from full function funds future gateway generate
    generated generator get given global got grace graceful granted greater group groups had handle handled handler
    handlers handshake has hash have having header headers healthy heap held here hex hold host hostname hosts hour
    hours how html http https httpx id identifier identity idle ids if ignored image immutable import imported in
    include included index indices infinite infinity info initialize initialized inner input inputs insert inserted
    inside instance instances instead int integer integers integrity intended internal interpreter interrupt into
    invocation ioctl is issue issuer it item items iterable iterate iteration iterator its job jobs join json kafka
    keep kernel key keys keyword keywords kill kind kinds known large larger last later leader lease least leaves
    left len length less level library limits line lines link links list literal load loaded loading local locale
    locate located location lock locks log login long longer longest lookup loop loops low lower main maintenance
    manager mandatory many mapping marked match matched matches matching matrix max maximum may mean media member
    members memory message messages metadata method methods middle might migration milliseconds mime minimum minute
    minutes mode model modified module more most moved multiple mutable mysql name named names namespace near need
    needed needs neither nested network new next node nodes none nonetype nor normal now null number numbers numeric
    numerical numpy object objects observed of off offset old older on once one ones online only onto open openai
    opened opening operand operands operation operational operations operator option optional options or order
    original orphan other out output outside over overflow override own owned owner ownership package packet page
    pandas parameter parameters parent parse parsed parser parsing part partial partition pass passed past path
    pattern payload peer pending per perform performed period permanent permission permissions permitted persistent
    pickle pipe place please point policy poll polling pool poolsize port position positional possible possibly
    postgres postgresql precision precondition prefix prepared present prevent previous primary privilege privileges
    procedure process processed processes processing produce producer program progress properly properties property
    protected protocol provide provided provider proxy psycopg public pydantic python queries query queue queued
    queues quota quoted rabbitmq raise raised ran range rank rate reach reachable reached read readable reader
    reading ready reason receive received receiving recent recipient recognized record records recover recovery
    recursion recursive redirect redirected redirects redis reference referenced references region register
    registered relation relationship release released remaining remote removed repeat replace replica replication
    reply report request requested requests require requirement requires reserved reset resolution resolve resolved
    resolver resource resources response responses restart restarted restarting result results resume retried
    retries retry retrying return returned returns rights role rollback rolled root round route row rows rule run
    running runtime safe same scalar schedule scheduled schema scope script second seconds secure security seek
    segment select self semaphore send sender sending sent separator sequence serial serialization serialize
    serialized server servers service services session set setting settings several shall shape shards shared short
    should shut shutdown sides signal signature signed similar simple since single singular size sizes skip skipped
    slice slot slow small smaller snapshot so socket some soon source space special specific specification specified
    specify split sqlalchemy sqlite ssl stack stage standard start started starting startup state statement states
    static status step steps still stop storage store stored str stream streaming streams strict string strings
    structure subclass submitted subprocess subscription subsystem succeeded success successful successfully such
    suffix suitable supplied support supported supports sync synchronous syntax system table tables tag take taken
    takes target task tasks template temporarily temporary terminal terminate termination text than that the then
    there these this those thread threads threshold throttling time timed timeouts timestamp timezone tls to token
    tokens tool top total trace traceback traffic transaction transactional transfer transferred transient transport
    trap tree tried trigger triggered true truncate trust trusted try trying tuple type types unbound uncaught
    undefined under underlying undo unhandled unicode unique unit units unlock unpack unsigned until unused up
    update updated upgrade upload uploaded upper upstream urllib usable usage use used user username users uses
    using utf valid validate validated validation validator value values variable variables verification verified
    verify verifying version very via violate void volume wait waited waiting warning was way week weeks were what
    when where which while whitespace who why width will window wire with within word words work worker workers
    working worse would wrap write writer writing written xml yaml year years yet yield zero zip zone
"""

# Those that say that something is wrong.
FAILURE_WORDS = frozenset(_FAILURES.split())
ERROR_WORDS = FAILURE_WORDS | frozenset(_OTHERS.split())
