-- sheets: what workers have counted and nobody has added up
select json_group_array(json_array(seq, at, document)) from (select * from redrive_series_sheet order by seq limit ?)

-- sheets_gone: those were added up
delete from redrive_series_sheet where seq <= ?

-- names: pairs of queue and kind with rows of their own on this day
select json_group_array(json_array(queue, kind)) from redrive_series where resolution = 'day' and at = ? and kind <> ''

-- stored: these rows as they are
select json_group_array(json_array(s.resolution, s.at, s.queue, s.kind, s.document))
from json_each(?) v cross join redrive_series s
where s.resolution = json_extract(v.value, '$[0]') and s.at = json_extract(v.value, '$[1]')
  and s.queue = json_extract(v.value, '$[2]') and s.kind = json_extract(v.value, '$[3]')

-- put: these rows as they are from now on
insert into redrive_series (resolution, at, queue, kind, completed, failed, document)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]'), json_extract(v.value, '$[5]'), json_extract(v.value, '$[6]')
from json_each(?) v where true
on conflict (resolution, at, queue, kind) do update set completed = excluded.completed, failed = excluded.failed,
  document = excluded.document

-- rows: of everything and, if asked for, of a queue (?3), a kind (?4), or a kind in a queue
select json_group_array(json_array(at, queue, kind, document)) from (
  select at, queue, kind, document from redrive_series indexed by redrive_series_of
  where resolution = ?1 and kind = '' and queue = '' and at >= ?2
  union all
  select at, queue, kind, document from redrive_series indexed by redrive_series_of
  where resolution = ?1 and kind = coalesce(?4, '') and at >= ?2 and queue <> ''
    and (?3 is not null or ?4 is not null) and (?3 is null or queue = ?3))

-- ended: what ended in each minute, by queue and kind
select json_group_array(json_array(at, queue, kind, completed, failed)) from redrive_series
where resolution = 'minute' and at >= ? and kind <> '' and (completed > 0 or failed > 0)

-- counts: exact totals per queue and kind
select queue, kind, queued, delayed, running, paused, failed from redrive_total
