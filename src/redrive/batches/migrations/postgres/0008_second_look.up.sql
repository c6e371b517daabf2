-- An inner batch belongs to its outer one, and to whom that is about.
alter table redrive.batches add column parent uuid;
create index batches_parent on redrive.batches (parent) where parent is not null;
