-- enqueue: many new tasks; returns those whose key already named a task
select id::text, existing::text, conflict
from redrive.enqueue(
  $1::text[]::uuid[], $2::text[], $3::text[], $4::text[]::jsonb[], $5::integer[], $6::integer[], $7::double precision[],
  $8::text[]::timestamptz[], $9::integer[], $10::text[], $11::text[], $12::text[], $13::text[])
