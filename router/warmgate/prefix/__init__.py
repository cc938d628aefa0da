"""What survived: block chains, the prefix cache, the ledger and the causes of loss."""
