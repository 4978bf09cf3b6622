-- A store of schema 1: state.db as SQL. Its identity is in the test.
BEGIN TRANSACTION;
CREATE TABLE events (
		seq INTEGER PRIMARY KEY AUTOINCREMENT,
		time INTEGER NOT NULL,
		kind TEXT NOT NULL,
		name TEXT NOT NULL,
		uid TEXT NOT NULL,
		level TEXT NOT NULL,
		reason TEXT NOT NULL,
		message TEXT NOT NULL);
INSERT INTO "events" VALUES(1,1577934245000000000,'machine','web','u-1','warning','Failed','create: no mirror; retry 1 of 7 in 10s');
INSERT INTO "events" VALUES(2,1577934245000000000,'machine','web','u-1','info','Created','');
CREATE TABLE intents (
		seq INTEGER PRIMARY KEY AUTOINCREMENT,
		token TEXT NOT NULL UNIQUE,
		kind TEXT NOT NULL,
		name TEXT NOT NULL,
		uid TEXT NOT NULL,
		action TEXT NOT NULL,
		began INTEGER NOT NULL,
		owner TEXT NOT NULL,
		chk INTEGER NOT NULL);
INSERT INTO "intents" VALUES(1,'t-1','machine','web','u-1','create',1577934245000000000,'',-4480712455590277561);
CREATE TABLE meta (
		id INTEGER PRIMARY KEY CHECK (id = 1),
		store_id TEXT NOT NULL,
		generation INTEGER NOT NULL,
		revision INTEGER NOT NULL,
		sum INTEGER NOT NULL,
		rebuilt TEXT NOT NULL,
		chk INTEGER NOT NULL);
INSERT INTO "meta" VALUES(1,'40ca8a7e-035f-4150-8f2a-54ead730690a',2,1,-1343835747501565973,'',221353732110676788);
CREATE TABLE objects (
		kind TEXT NOT NULL,
		name TEXT NOT NULL,
		uid TEXT NOT NULL,
		revision INTEGER NOT NULL,
		generation INTEGER NOT NULL,
		life TEXT NOT NULL,
		spec BLOB NOT NULL,
		status BLOB,
		created INTEGER NOT NULL,
		updated INTEGER NOT NULL,
		chk INTEGER NOT NULL,
		PRIMARY KEY (kind, name)) WITHOUT ROWID;
INSERT INTO "objects" VALUES('machine','web','u-1',1,1,'alive',X'7B226D616368696E65223A7B226E616D65223A22776562227D7D',X'7B227374617465223A2272756E6E696E67227D',1577934245000000000,1577934245000000000,3209082204100303276);
CREATE INDEX events_object ON events (kind, name, seq);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('intents',1);
INSERT INTO "sqlite_sequence" VALUES('events',2);
COMMIT;
PRAGMA user_version = 1;
PRAGMA application_id = 1752396908;
