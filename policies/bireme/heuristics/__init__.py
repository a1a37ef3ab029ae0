"""Rule-based policies: orderers and placers with written formulas."""
