-- An inner batch belongs to its outer one, and to whom that is about.
alter table redrive_batches add column parent text;
create index redrive_batches_parent on redrive_batches (parent) where parent is not null;
