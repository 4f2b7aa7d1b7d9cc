B
split_53_0Jn‰‡¿åw?©kW>X§?ñ*E?¤÷¦¿