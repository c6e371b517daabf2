drop trigger dead_letter_gone on redrive.dead_letter;
