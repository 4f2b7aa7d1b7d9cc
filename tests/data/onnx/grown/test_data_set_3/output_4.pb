B
logits_sumJ”€—=