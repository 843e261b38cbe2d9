"""What estimators may need beside a trace, gathered from further passes, models or files."""
