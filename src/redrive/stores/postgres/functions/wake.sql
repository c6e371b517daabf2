-- A hint to the workers of a queue, at most one per transaction: each queue has a channel of its own, so that others sleep
-- on. The first position a transaction takes is its smallest.
-- Names are qualified instead of setting a search_path, which would cost as much as the rest. Types as well: a caller's
-- own "text" would be run with the rights of the functions that call this one.
create or replace function redrive.wake(p_queue text, p_position bigint) returns void
language plpgsql as $$
declare
  v_woken constant pg_catalog.text := pg_catalog.current_setting('redrive.woken', true);
  v_mark constant pg_catalog.text := pg_catalog.concat('|', p_queue, '|');
begin
  if pg_catalog.strpos(v_woken, v_mark) operator(pg_catalog.>) 0 then return; end if;
  perform pg_catalog.set_config('redrive.woken', pg_catalog.concat(v_woken, v_mark), true);
  perform pg_catalog.pg_notify(pg_catalog.concat('redrive_', pg_catalog.md5(p_queue)),
    pg_catalog.concat('ready ', p_queue, ' ', p_position));
end $$;

-- Workers look at the clock at least every few seconds; only what is due sooner needs a hint, to the queue's own workers.
create or replace function redrive.wake_due(p_queue text, p_at timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_ms constant bigint := ceil(extract(epoch from p_at - clock_timestamp()) * 1000);
begin
  if v_ms < 5000 then
    perform pg_notify('redrive_' || md5(p_queue), 'due ' || greatest(v_ms, 0) || ' ' || p_queue);
  end if;
end $$;
