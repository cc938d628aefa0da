"""``python -m warmgate``."""

try:
    from warmgate.cli import main
except KeyboardInterrupt:
    raise SystemExit(130) from None

main()
