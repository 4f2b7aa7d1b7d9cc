B
iso/scoresJ`ù:½