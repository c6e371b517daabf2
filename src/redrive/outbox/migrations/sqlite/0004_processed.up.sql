-- "where processed_at is null" of search_outbox_events reads live events alone, however many are done: history answers from
-- this index that it has none. The expression is the view's.
create index redrive_history_outbox_processed on redrive_history (strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1e6, 'unixepoch'))
  where state = 'completed' and kind glob 'OUTBOX:*';
