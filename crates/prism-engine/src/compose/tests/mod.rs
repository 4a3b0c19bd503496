mod maximum;
