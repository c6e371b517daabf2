-- What needs tables, functions and views: triggers, the first days of history, and that nothing is open to everyone.
-- Who may do what is in functions/grants.sql.

create trigger dead_letter_gone after delete on redrive.dead_letter referencing old table as gone
  for each statement execute function redrive.letters_gone();

select redrive.partitions(36500);

revoke all on all functions in schema redrive from public;
revoke all on all tables in schema redrive from public;
revoke all on all sequences in schema redrive from public;
revoke all on schema redrive from public;
