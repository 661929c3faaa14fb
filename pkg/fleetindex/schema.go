package fleetindex

// sqliteSchema and postgresSchema have the statements that lead from one version of the schema to the
// next. A released version is never changed; its successor is appended.
//
// An id of a feed is its resource's id and its cluster's, and an id of a row is its feed's and a
// number (directory.go), so a range of ids is the rows of one feed, or of one resource.
var sqliteSchema = [][]string{{
	`CREATE TABLE cluster (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL, epoch INTEGER NOT NULL, heard INTEGER NOT NULL, changed INTEGER NOT NULL)`,
	`CREATE INDEX cluster_changed ON cluster (changed)`,
	`CREATE TABLE resource (id INTEGER PRIMARY KEY, grp TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (grp, name))`,
	`CREATE TABLE definition (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE)`,
	`CREATE TABLE feed (id INTEGER PRIMARY KEY, cluster INTEGER NOT NULL, definition INTEGER NOT NULL, version TEXT NOT NULL, synced INTEGER NOT NULL, total INTEGER NOT NULL, next INTEGER NOT NULL, incomplete TEXT NOT NULL)`,
	`CREATE INDEX feed_cluster ON feed (cluster)`,
	`CREATE TABLE object (id INTEGER PRIMARY KEY, feed INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, version TEXT NOT NULL, created INTEGER NOT NULL, deleted INTEGER NOT NULL,
		labels TEXT NOT NULL, owner TEXT NOT NULL, images TEXT NOT NULL, node TEXT NOT NULL, status TEXT NOT NULL COLLATE NOCASE, cells TEXT NOT NULL)`,
	`CREATE UNIQUE INDEX object_key ON object (feed, namespace, name)`,
	`CREATE INDEX object_status ON object (status, feed)`,
	// The words come in small letters with spaces between them. | keeps phrases from going across fields.
	`CREATE VIRTUAL TABLE words USING fts5 (content, labels, images, content='', contentless_delete=1, tokenize="ascii tokenchars '|'")`,
}, {
	`CREATE TABLE decision (question BLOB NOT NULL, cluster BLOB NOT NULL, at INTEGER NOT NULL, allowed INTEGER NOT NULL, PRIMARY KEY (question, cluster)) WITHOUT ROWID`,
	`CREATE INDEX decision_cluster ON decision (cluster)`,
	`CREATE INDEX decision_at ON decision (allowed, at)`,
}, endNamespaces}

var postgresSchema = [][]string{{
	`CREATE TABLE cluster (id BIGINT PRIMARY KEY, name TEXT COLLATE "C" NOT NULL UNIQUE, uid TEXT NOT NULL, epoch BIGINT NOT NULL, heard BIGINT NOT NULL, changed BIGINT NOT NULL)`,
	`CREATE INDEX cluster_changed ON cluster (changed)`,
	`CREATE TABLE resource (id BIGINT PRIMARY KEY, grp TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (grp, name))`,
	`CREATE TABLE definition (id BIGINT PRIMARY KEY, content TEXT NOT NULL)`,
	// A definition is longer than what a b-tree takes.
	`CREATE UNIQUE INDEX definition_content ON definition (md5(content))`,
	`CREATE TABLE feed (id BIGINT PRIMARY KEY, cluster BIGINT NOT NULL, definition BIGINT NOT NULL, version TEXT NOT NULL, synced BIGINT NOT NULL, total BIGINT NOT NULL, next BIGINT NOT NULL, incomplete TEXT NOT NULL)`,
	`CREATE INDEX feed_cluster ON feed (cluster)`,
	// Kubernetes orders names by bytes.
	`CREATE TABLE object (id BIGINT PRIMARY KEY, feed BIGINT NOT NULL, namespace TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, uid TEXT NOT NULL, version TEXT NOT NULL, created BIGINT NOT NULL, deleted BIGINT NOT NULL,
		labels TEXT NOT NULL, owner TEXT NOT NULL, images TEXT NOT NULL, node TEXT NOT NULL, status TEXT COLLATE "C" NOT NULL, cells TEXT NOT NULL, words TSVECTOR NOT NULL)`,
	`CREATE UNIQUE INDEX object_key ON object (feed, namespace, name)`,
	`CREATE INDEX object_status ON object (lower(status), feed)`,
	`CREATE INDEX object_words ON object USING gin (words)`,
}, {
	`CREATE TABLE decision (question BYTEA NOT NULL, cluster BYTEA NOT NULL, at BIGINT NOT NULL, allowed BIGINT NOT NULL, PRIMARY KEY (question, cluster))`,
	`CREATE INDEX decision_cluster ON decision (cluster)`,
	`CREATE INDEX decision_at ON decision (allowed, at)`,
}, endNamespaces}

// endNamespaces writes namespaces as type namespace does.
var endNamespaces = []string{`UPDATE object SET namespace = namespace || '/' WHERE namespace <> ''`}

// metaSchema makes the table that says which version the schema has.
const metaSchema = `CREATE TABLE IF NOT EXISTS meta (name VARCHAR(32) PRIMARY KEY, value BIGINT NOT NULL, content TEXT NOT NULL)`

// Names in meta: the version of the schema, the sequence of changes to the directory, how many
// clusters were removed, and the key of tokens.
const metaSchemaVersion, metaSequence, metaRemovals, metaTokenKey = "schema", "sequence", "removals", "token-key"
