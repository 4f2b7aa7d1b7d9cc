Bhgb2/probabilitiesJpë>Ès
?