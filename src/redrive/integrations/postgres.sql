-- enqueue: many new tasks; returns those whose key already named a task
select id::text, existing::text, conflict
from redrive.enqueue(
  $1::text[]::uuid[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::integer[], $6::integer[], $7::double precision[],
  $8::text[]::timestamptz[], $9::integer[], $10::text[], $11::text[], $12::text[], $13::text[])

-- enqueue_declared: the same where the application declares kinds and queues of some
select id::text, existing::text, conflict
from redrive.enqueue_declared(
  $1::text[]::uuid[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::integer[], $6::integer[], $7::double precision[],
  $8::text[]::timestamptz[], $9::integer[], $10::text[], $11::text[], $12::text[], $13::text[], p_declared => $14::boolean[])

-- apply: new joins, many new tasks that may belong to them and to features, money and rows; returns the same
select id::text, existing::text, conflict, repeated
from redrive.apply_own(
  $1::text::jsonb, $2::text[]::uuid[], $3::text[], $4::text[], $5::text[]::jsonb[], $6::integer[], $7::integer[],
  $8::double precision[], $9::text[]::timestamptz[], $10::integer[], $11::text[], $12::text[], $13::text[], $14::text[],
  $15::text[], $16::text[]::jsonb[], $17::text[]::uuid[], $18::text[]::uuid[], $19::text::jsonb, $20::text::jsonb, $21::boolean)
