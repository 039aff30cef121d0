package storetest

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func fileCases() []rule { // J17
	return []rule{
		{"a file is stored as it was added", "with every field", fileStored},
		{"a file needs its org, and its id is unique", "ErrNotFound and ErrExists", fileRefused},
		{"a file belongs to one key of an org", "for another key, and for another org, it does not exist; no key stands for all of the org", fileOwned},
		{"files are listed in pages", "of one key and purpose, the newest or the oldest first", filePages},
		{"an expired file is found until it is marked, and known until it is forgotten", "its content is deleted once; J18", fileExpiry},
		{"files of a container get more time while they have some", "others, those that never end and those whose time is over stay; J18", filesExtended},
		{"a key may have half of the files of its org", "an *org.CapError; those of others, and those whose content is gone, do not count", filesOfAKeyCapped}, // A07
		{"an org takes its files with it", "a new org with the id has none of them", filesOfDeletedOrg},
	}
}

func filePersistenceCases() []rule {
	return []rule{{"files survive a restart", "as they were", filesReopened}}
}

// addFile stores a file of a key that expires at a time; the zero time is never.
func (b *testBench) addFile(orgID, principal, id string, expires time.Time) file.File {
	b.Helper()
	f := file.File{Org: orgID, Principal: principal, ID: id, Name: id + ".txt", Purpose: file.UserData, CreatedAt: b.now(), ExpiresAt: expires}
	b.ok(b.Files.AddFile(b.Context(), f))
	return f
}

// filesOf fails the case unless the key has files with these ids, the newest first.
func (b *testBench) filesOf(orgID, principal string, want ...string) {
	b.Helper()
	b.listed(file.Query{Org: orgID, Principal: principal, Limit: 100}, want...)
}

func (b *testBench) listed(q file.Query, want ...string) {
	b.Helper()
	found, err := b.Files.Files(b.Context(), q)
	b.ok(err)
	got := []string{}
	for _, f := range found {
		got = append(got, f.ID)
	}
	b.equal(got, append([]string{}, want...))
}

func fileStored(b *testBench) {
	b.withOrgs("a")
	var want file.File
	fill(&want)
	want.Org = "a"
	b.ok(b.Files.AddFile(b.Context(), want))
	got, err := b.Files.File(b.Context(), "a", want.Principal, want.ID)
	b.ok(err)
	b.equal(got, want)
	never := b.addFile("a", "k", "file-2", time.Time{})
	got, err = b.Files.File(b.Context(), "a", "k", "file-2")
	b.ok(err)
	b.equal(got, never)
}

func fileRefused(b *testBench) {
	b.checkError(b.Files.AddFile(b.Context(), file.File{Org: "a", ID: "file-1", Purpose: file.UserData}), org.ErrNotFound)
	b.withOrgs("a")
	b.addFile("a", "k", "file-1", time.Time{})
	b.checkError(b.Files.AddFile(b.Context(), file.File{Org: "a", Principal: "other", ID: "file-1", Purpose: file.UserData}), org.ErrExists)
	b.filesOf("a", "k", "file-1")
}

func fileOwned(b *testBench) {
	b.withOrgs("a", "b")
	b.addFile("a", "k", "file-1", time.Time{})
	for _, c := range []struct{ org, principal, id string }{{"a", "other", "file-1"}, {"b", "k", "file-1"}, {"a", "k", "file-2"}, {"nobody", "k", "file-1"}} {
		_, err := b.Files.File(b.Context(), c.org, c.principal, c.id)
		b.checkError(err, file.ErrNotFound)
		b.checkError(b.Files.DeleteFile(b.Context(), c.org, c.principal, c.id), file.ErrNotFound)
	}
	b.filesOf("a", "other")
	b.filesOf("b", "k")
	b.filesOf("a", "k", "file-1")
	b.addFile("a", "other", "file-2", time.Time{})
	b.filesOf("a", "", "file-2", "file-1")
	b.filesOf("b", "")
	_, err := b.Files.File(b.Context(), "a", "", "file-2")
	b.ok(err)
	b.ok(b.Files.DeleteFile(b.Context(), "a", "", "file-2"))
	b.filesOf("a", "", "file-1")
	b.checkError(b.Files.DeleteFile(b.Context(), "b", "", "file-1"), file.ErrNotFound)
	b.ok(b.Files.DeleteFile(b.Context(), "a", "k", "file-1"))
	b.filesOf("a", "k")
}

func filesExtended(b *testBench) {
	b.withOrgs("a", "b")
	now := b.now()
	add := func(orgID, id, container string, left time.Duration) {
		f := file.File{Org: orgID, Principal: "k", ID: id, Purpose: file.Output, CreatedAt: now, Container: container}
		if left != 0 {
			f.ExpiresAt = now.Add(left)
		}
		b.ok(b.Files.AddFile(b.Context(), f))
	}
	add("a", "file-1", "c", time.Minute)
	add("a", "file-2", "c", 10*time.Minute) // has enough
	add("a", "file-3", "c", -time.Minute)   // is over
	add("a", "file-4", "c", 0)              // has no end
	add("a", "file-5", "d", time.Minute)
	add("a", "file-6", "c", time.Minute)
	add("b", "file-1", "c", time.Minute)
	x := file.Extension{Org: "a", Container: "c", ID: "file-1", Now: now, Before: now.Add(5 * time.Minute), Until: now.Add(30 * time.Minute)}
	left := func(orgID, id string) time.Duration {
		f, err := b.Files.File(b.Context(), orgID, "k", id)
		b.ok(err)
		if f.ExpiresAt.IsZero() {
			return 0
		}
		return f.ExpiresAt.Sub(now)
	}
	b.ok(b.Files.ExtendFiles(b.Context(), x))
	b.equal([]time.Duration{left("a", "file-1"), left("a", "file-6")}, []time.Duration{30 * time.Minute, time.Minute})
	x.ID = ""
	b.ok(b.Files.ExtendFiles(b.Context(), x))
	b.equal([]time.Duration{left("a", "file-2"), left("a", "file-3"), left("a", "file-4"), left("a", "file-5"), left("a", "file-6"), left("b", "file-1")},
		[]time.Duration{10 * time.Minute, -time.Minute, 0, time.Minute, 30 * time.Minute, time.Minute})
}

func filePages(b *testBench) {
	b.withOrgs("a")
	for _, id := range []string{"file-3", "file-1", "file-2"} {
		b.addFile("a", "k", id, time.Time{})
	}
	b.ok(b.Files.AddFile(b.Context(), file.File{Org: "a", Principal: "k", ID: "file-4", Purpose: file.Vision}))
	b.addFile("a", "other", "file-5", time.Time{})
	q := file.Query{Org: "a", Principal: "k", Limit: 2}
	b.listed(q, "file-4", "file-3")
	q.After = "file-3"
	b.listed(q, "file-2", "file-1")
	q.Oldest = true
	b.listed(q, "file-4")
	q.After, q.Purpose = "", file.UserData
	b.listed(q, "file-1", "file-2")
	q.Purpose = file.Vision
	b.listed(q, "file-4")
	q.After = "file-9"
	b.listed(q)
	b.ok(b.Files.AddFile(b.Context(), file.File{Org: "a", Principal: "k", ID: "file-6", Purpose: file.Output, Container: "c", Path: "d/x"}))
	b.ok(b.Files.AddFile(b.Context(), file.File{Org: "a", Principal: "other", ID: "file-7", Purpose: file.Output, Container: "c", Path: "y"}))
	b.listed(file.Query{Org: "a", Principal: "k", Container: "c", Limit: 9}, "file-6")
	b.listed(file.Query{Org: "a", Container: "c", Limit: 9}, "file-7", "file-6")
	b.listed(file.Query{Org: "a", Container: "d", Limit: 9})
}

func fileExpiry(b *testBench) {
	b.withOrgs("a")
	late := b.addFile("a", "k", "file-1", b.now().Add(2*time.Hour))
	early := b.addFile("a", "k", "file-2", b.now().Add(time.Hour))
	b.addFile("a", "k", "file-3", time.Time{})
	expired := func(limit int, want ...file.File) {
		b.Helper()
		got, err := b.Files.ExpiredFiles(b.Context(), b.now(), limit)
		b.ok(err)
		b.equal(append([]file.File{}, got...), append([]file.File{}, want...))
	}
	has := func(id string, want bool) {
		b.Helper()
		got, err := b.Files.HasFile(b.Context(), "a", id)
		b.ok(err)
		b.equal(got, want)
	}
	expired(9)
	b.step(time.Hour)
	expired(9, early)
	b.step(time.Hour)
	expired(9, early, late)
	expired(1, early)
	has("file-2", true)
	b.ok(b.Files.MarkExpired(b.Context(), "a", "file-2"))
	b.ok(b.Files.MarkExpired(b.Context(), "a", "file-9"))
	has("file-2", false)
	has("file-3", true)
	has("file-9", false)
	expired(9, late)
	b.ok(b.Files.ForgetExpired(b.Context(), b.now().Add(-time.Hour))) // that of file-2 is not before it
	b.filesOf("a", "k", "file-3", "file-2", "file-1")
	b.ok(b.Files.ForgetExpired(b.Context(), b.now().Add(time.Hour)))
	b.filesOf("a", "k", "file-3", "file-1") // file-1 is not marked
}

func filesOfDeletedOrg(b *testBench) {
	b.withOrgs("a")
	b.addFile("a", "k", "file-1", time.Time{})
	b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
	b.filesOf("a", "k")
	b.withOrgs("a")
	b.filesOf("a", "k")
}

func filesReopened(b *testBench) {
	b.withOrgs("a")
	want := b.addFile("a", "k", "file-1", b.now().Add(time.Hour))
	b.Store = b.maker.Reopen(b.T, b.Store)
	got, err := b.Files.File(b.Context(), "a", "k", "file-1")
	b.ok(err)
	b.equal(got, want)
}

func filesOfAKeyCapped(b *testBench) {
	b.capped(org.Caps{Files: 5, FileBytes: 21})
	add := func(principal, id string, bytes int64) error {
		return b.Files.AddFile(b.Context(), file.File{Org: "a", Principal: principal, ID: id, Name: "x", Purpose: file.UserData, Bytes: bytes, CreatedAt: b.now(), ExpiresAt: b.now()})
	}
	b.ok(add("ann", "f1", 1))
	b.ok(add("ann", "f2", 1))
	b.checkCapError(add("ann", "f3", 10), "org_caps.files_mib", 11)
	b.ok(add("ann", "f3", 9))
	b.checkCapError(add("ann", "f4", 0), "org_caps.files", 3)
	b.ok(add("ben", "f4", 11))
	b.ok(b.Files.MarkExpired(b.Context(), "a", "f3"))
	b.ok(add("ann", "f5", 9))
	b.filesOf("a", "ann", "f5", "f3", "f2", "f1")
}
