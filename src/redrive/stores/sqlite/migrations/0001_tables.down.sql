-- Removes the tables. Reached only with "--down --to 0": this deletes every task.
drop table entry;
drop table posting;
drop table account;
drop table audit;
drop table duty;
drop table worker;
drop table schedule;
drop table hold;
drop table kind;
drop table idempotency_key;
drop table total;
drop table failure_group;
drop table dead_letter;
drop table attempt;
drop table history;
drop table task;
drop table position;
