B
logits_sumJҪU@