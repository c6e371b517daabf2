delete from redrive.reserved_kind where feature = 'batches';
