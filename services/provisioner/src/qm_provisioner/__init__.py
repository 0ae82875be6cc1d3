"""Provisioner: from cards to an environment that was proven usable, and back, with a receipt.

Owns the topic `environments` (streams `environment/<order>`). Reads `allocations` for the cards to build on, `orders`
for the ends of orders, and `directory` for who may see what.

Invariants
- A call to a backend follows the commit of its intent; the intent names what will exist, so that a crash at any moment
  leaves nothing that is not found by its name.
- Ready is said when at least one check was made, as the user with the issued credential, and all passed.
- The way back ends access first and proves it; `environment.revoked`, `.wiped` and `.released` follow observations.
- Cards are said to be clean once, and only if every step back succeeded; else they are quarantined.
- No secret is in a fact, a document, a log line or an error.
- Replays reach no backend: the runner is a worker beside the runtime, and facts alone change the documents.

Not on its log: the table `credentials`, sealed with the key ring of the settings. Back it up with the database and the
keys apart from it; after a replay without it, environments live on, but their credentials cannot be handed out.
The simulated clouds are not a part of the service; their file is lost like a cloud is.
"""
