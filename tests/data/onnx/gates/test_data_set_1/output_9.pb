
Blinearattentiongate_29_1J79˜69(99