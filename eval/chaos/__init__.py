"""What happens when parts fail: real processes, killed, hung, lied to and starved, under load."""
