Bcausalconvwithstate_94_1JHpö“¿0c>Ô
¿¶;¾ÜQ¿f³ü¿I®ÿ¿Ýf¿ç'¿?]EÜ¿¯@™¿šCŠ?«£<ÝÞÃ?/Ï?ñ‡?\n?TÂµ¿