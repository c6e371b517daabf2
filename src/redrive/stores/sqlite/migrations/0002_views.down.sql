drop view v_counts;
drop view v_failures;
drop view v_tasks;
