"""The trusted core: queries and their sensitivity, noise, continual release, sessions, guarantees."""
