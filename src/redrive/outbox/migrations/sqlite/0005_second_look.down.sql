select 1; -- the first real statement takes the place of this
