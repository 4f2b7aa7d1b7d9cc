Beinsum_1J(f_@…¤T@Ù§(¿e]—À Ò›@ø÷A@ÇJÀ×
ÀE-~¿lql@