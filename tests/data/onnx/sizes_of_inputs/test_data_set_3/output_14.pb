B
split_46_0Jn‰‡¿åw?©kW>X§?ñ*E?¤÷¦¿