"""The one common policy optimizer: scored rollouts -> credit -> weight streams -> loss -> update."""
