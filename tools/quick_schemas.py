"""To be imported before nbformat, nbclient or nbval: then these take a tenth of a second to import, not two.

jsonschema, where it finds `rfc3987_syntax`, compiles a grammar of international web addresses as it is imported. No
schema of a notebook asks for one, so here that package is not found.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)
