B
logits_sumJu?