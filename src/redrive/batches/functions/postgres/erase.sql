-- A batch is about whom it was made for: by it a worker's role erases tasks that do not carry the scope themselves, so it gives a
-- batch no other scope than that of the erasure, and makes none of tasks that are there already.
create or replace function redrive.guard_batch_scope() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not redrive.administers() and (
    (tg_op = 'UPDATE' and coalesce(new.scope, '') not like 'erased:%')
    or exists (select 1 from redrive.task_join j where tg_op = 'INSERT' and j.id = new.id and j.created_at < now()))
  then
    raise exception 'role % may not say whom batch % is about', redrive.caller(), new.id using
      errcode = 'insufficient_privilege', hint = format('as the owner of the schema: select redrive.grant_api(%L)', redrive.caller());
  end if;
  return new;
end $$;

create or replace trigger guard_batch_new before insert on redrive.batches for each row execute function redrive.guard_batch_scope();

create or replace trigger guard_batch_scope before update on redrive.batches for each row
  when (new.scope is distinct from old.scope or new.parent is distinct from old.parent) execute function redrive.guard_batch_scope();

create or replace trigger guard_batch_scope before update on redrive.batches_remote for each row
  when (new.scope is distinct from old.scope or new.account is distinct from old.account) execute function redrive.guard_batch_scope();

create or replace function redrive.batches_meant(p_scope text, p_tasks uuid[], p_own uuid[]) returns setof uuid
language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive around as (
    select x.id as task, b.parent, b.scope from redrive.batches b join (
      select t.id, t.join_id from redrive.task t where t.id = any (p_tasks)
      union all select h.id, h.join_id from redrive.history h where h.id = any (p_tasks)) x on x.join_id = b.id
    union select a.task, b.parent, b.scope from around a join redrive.batches b on b.id = a.parent
  )
  select a.task from around a where a.scope = p_scope
  union all select n.id from (
    select h.id, substring(h.idempotency_key, '^redrive:webhook-event:batch-([0-9a-f-]{36})-[0-9]+$')::uuid as batch
    from redrive.history h where h.id = any (p_tasks) and h.kind = 'WEBHOOK_EVENT') n
  join redrive.batches_remote b on b.id = n.batch where b.scope = p_scope or b.account = p_scope
$$;

comment on function redrive.batches_meant(text, uuid[], uuid[]) is 'For erasing: items of batches about a scope, also of inner ones, and what customers are told of remote ones';
