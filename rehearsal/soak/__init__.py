"""The soak: experiments train on the rehearsed cluster while a fault happens every minute."""
