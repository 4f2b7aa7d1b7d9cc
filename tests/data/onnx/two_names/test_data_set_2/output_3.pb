Badd_12J€yAAŸ
AšA|!A¬#ACá@v>Am¸A·UAŠˆA„AìAAÃ©AXzA'*AÌÃ
A?ÕA"(AÛAfA~Wþ@A¯AYˆ AFA‹‘"A“š¬@JÞ AÔtê@ýA-AˆAxúAAA•AkAùú@´³ÿ@ÜMAo+!AVåAVUA{RA¥€AÍGç@ ÁAÖœA3ÐAÙÓú@-*AgÔA™ASAEgA€oA
A6¦AS?AºAmWAÄ–A·Aã'4AŸA2Ù	A/õAààA“ÍA%A· A/AÖ•AºpA†©A˜ùA~¤AbD&A¿² A¯AÞ‹AîA9?AT*A¶A±VA†•A–%AßAQA‰AdAýûA‹¼Aß¤AöAÌìA