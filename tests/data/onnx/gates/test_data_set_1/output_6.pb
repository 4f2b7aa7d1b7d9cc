
Bgatedrmsnorm_22J0”x¼E°R¶o²ž-?©£±å7B!lÀ³±ÿ4‰¾1²H;¥U³Ë›W´7A¤³>+ê,