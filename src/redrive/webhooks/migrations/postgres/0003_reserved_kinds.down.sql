delete from redrive.reserved_kind where feature = 'webhooks';
