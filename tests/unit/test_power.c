/* Power cuts. All writes of the store go through a layer that notes them; a cut is then played:
 * what was synced before it is on the disk, of what was written since any part may be, sector by
 * sector. Whatever was told to be saved before the cut must be there, and the store must open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "profiles/backup.h"
#include "profiles/internal.h"
#include "support/store_fixture.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512
#define CUTS   40

/* --- what was done, in order ------------------------------------------------------------------ */

typedef enum { DID_WRITE, DID_TRUNCATE, DID_SYNC, DID_DELETE } deed_kind;

typedef struct {
    deed_kind kind;
    bool wal; /* which file: the write-ahead file, or the database */
    sqlite3_int64 at;
    size_t len;
    unsigned char *data;
} deed;

static deed *deeds;
static size_t n_deeds;
static bool noting;

static void did(deed_kind kind, bool wal, sqlite3_int64 at, const void *data, size_t len)
{
    if (!noting) return;
    deeds = xrealloc_array(deeds, n_deeds + 1, sizeof *deeds);
    deeds[n_deeds] = (deed){.kind = kind, .wal = wal, .at = at, .len = len};
    if (data) deeds[n_deeds].data = (unsigned char *)xmemdup0(data, len);
    n_deeds++;
}

/* --- the layer -------------------------------------------------------------------------------- */

typedef struct {
    sqlite3_file base;
    bool noted, wal;
    sqlite3_file *real; /* behind this struct */
} layer_file;

static sqlite3_vfs *below;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((layer_file *)(void *)file)->real;
}

#define PASS(name, parameters, arguments)                                                          \
    static int name parameters                                                                     \
    {                                                                                              \
        sqlite3_file *real = real_of(file);                                                        \
        return real->pMethods->arguments;                                                          \
    }
PASS(layer_read, (sqlite3_file * file, void *to, int n, sqlite3_int64 at), xRead(real, to, n, at))
PASS(layer_size, (sqlite3_file * file, sqlite3_int64 *size), xFileSize(real, size))
PASS(layer_lock, (sqlite3_file * file, int level), xLock(real, level))
PASS(layer_unlock, (sqlite3_file * file, int level), xUnlock(real, level))
PASS(layer_reserved, (sqlite3_file * file, int *out), xCheckReservedLock(real, out))
PASS(layer_control, (sqlite3_file * file, int op, void *arg), xFileControl(real, op, arg))
PASS(layer_sector, (sqlite3_file * file), xSectorSize(real))
PASS(layer_shm_map, (sqlite3_file * file, int page, int size, int extend, void volatile **out),
     xShmMap(real, page, size, extend, out))
PASS(layer_shm_lock, (sqlite3_file * file, int at, int n, int flags), xShmLock(real, at, n, flags))
PASS(layer_shm_unmap, (sqlite3_file * file, int remove_it), xShmUnmap(real, remove_it))

/* No promise about writes: the hardest case. */
static int layer_traits(sqlite3_file *file)
{
    (void)file;
    return 0;
}

static void layer_shm_barrier(sqlite3_file *file)
{
    sqlite3_file *real = real_of(file);
    real->pMethods->xShmBarrier(real);
}

static int layer_close(sqlite3_file *file)
{
    sqlite3_file *real = real_of(file);
    return real->pMethods->xClose(real);
}

static int layer_write(sqlite3_file *file, const void *data, int n, sqlite3_int64 at)
{
    layer_file *l = (layer_file *)(void *)file;
    if (l->noted) did(DID_WRITE, l->wal, at, data, (size_t)n);
    return l->real->pMethods->xWrite(l->real, data, n, at);
}

static int layer_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    layer_file *l = (layer_file *)(void *)file;
    if (l->noted) did(DID_TRUNCATE, l->wal, size, NULL, 0);
    return l->real->pMethods->xTruncate(l->real, size);
}

static int layer_sync(sqlite3_file *file, int flags)
{
    layer_file *l = (layer_file *)(void *)file;
    (void)flags; /* the disk is played: no need to wait for the real one */
    if (l->noted) did(DID_SYNC, l->wal, 0, NULL, 0);
    return SQLITE_OK;
}

static const sqlite3_io_methods layer_methods = {
    .iVersion = 2,
    .xClose = layer_close,
    .xRead = layer_read,
    .xWrite = layer_write,
    .xTruncate = layer_truncate,
    .xSync = layer_sync,
    .xFileSize = layer_size,
    .xLock = layer_lock,
    .xUnlock = layer_unlock,
    .xCheckReservedLock = layer_reserved,
    .xFileControl = layer_control,
    .xSectorSize = layer_sector,
    .xDeviceCharacteristics = layer_traits,
    .xShmMap = layer_shm_map,
    .xShmLock = layer_shm_lock,
    .xShmBarrier = layer_shm_barrier,
    .xShmUnmap = layer_shm_unmap,
};

static int layer_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    layer_file *l = (layer_file *)(void *)file;
    *l = (layer_file){.real = (sqlite3_file *)(void *)(l + 1),
                      .wal = (flags & SQLITE_OPEN_WAL) != 0,
                      .noted = (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_DB)) != 0};
    int code = below->xOpen(below, name, l->real, flags, out);
    if (code == SQLITE_OK) l->base.pMethods = &layer_methods;
    return code;
}

static int layer_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    if (strstr(name, "-wal")) did(DID_DELETE, true, 0, NULL, 0);
    return below->xDelete(below, name, sync);
}

static sqlite3_vfs layer;

static void install_layer(void)
{
    below = sqlite3_vfs_find(NULL);
    layer = *below;
    layer.zName = "power";
    layer.szOsFile = (int)sizeof(layer_file) + below->szOsFile;
    layer.xOpen = layer_open;
    layer.xDelete = layer_delete;
    sqlite3_vfs_register(&layer, 1);
}

/* --- playing a cut ---------------------------------------------------------------------------- */

typedef struct {
    buf content;
    bool there;
} disk_file;

static void put(disk_file *file, sqlite3_int64 at, const void *data, size_t len)
{
    file->there = true;
    while (file->content.len < (size_t)at + len)
        buf_append(&file->content, "\0\0\0\0\0\0\0\0", 8);
    /* sizes are of whole sectors but for the write-ahead file's frames */
    memcpy(file->content.data + at, data, len);
}

static void apply(disk_file files[2], const deed *d, unsigned *seed, bool whole)
{
    disk_file *file = &files[d->wal];
    if (d->kind == DID_TRUNCATE && file->content.len > (size_t)d->at)
        file->content.len = (size_t)d->at;
    if (d->kind == DID_DELETE) {
        file->content.len = 0;
        file->there = false;
    }
    if (d->kind != DID_WRITE) return;
    for (size_t done = 0; done < d->len;) {
        size_t in_sector = SECTOR - ((size_t)d->at + done) % SECTOR;
        size_t n = d->len - done < in_sector ? d->len - done : in_sector;
        if (whole || rand_r(seed) % 2) put(file, d->at + (sqlite3_int64)done, d->data + done, n);
        done += n;
    }
}

/* The deeds before `cut`: whole up to the file's last sync, afterwards in part. */
static void play(disk_file files[2], size_t cut, unsigned *seed)
{
    size_t synced[2] = {0, 0};
    for (size_t i = 0; i < cut; i++)
        if (deeds[i].kind == DID_SYNC) synced[deeds[i].wal] = i;
    for (size_t i = 0; i < cut; i++) {
        bool whole = i < synced[deeds[i].wal];
        /* a change of length that was not synced may have happened or not */
        if (!whole && deeds[i].kind != DID_WRITE && rand_r(seed) % 2) continue;
        apply(files, &deeds[i], seed, whole);
    }
}

/* --- the test --------------------------------------------------------------------------------- */

static store_fixture f;

static void read_disk(disk_file *out, const char *path)
{
    out->there = file_exists(path);
    if (out->there) assert_ok(&f, file_read(path, 1 << 26, &out->content, &f.err));
}

static void check_store(const char *home, const vault_key *key, const session *who, int64_t talk,
                        size_t confirmed)
{
    store *st = NULL;
    conversation c;
    doctor_report report;
    if (store_open(home, NULL, &st, &f.err) != PF_OK) fail_msg("%s", f.err.text);
    session *s = session_make(st, who->user, who->uid, "mira", 1, (vault_key *)(uintptr_t)key);
    assert_ok(&f, conversation_load(s, talk, &c, &f.err));
    if (c.n < confirmed || c.n > confirmed + 1)
        fail_msg("%zu messages were saved, %zu are there", confirmed, c.n);
    for (size_t i = 0; i < c.n; i++) {
        char text[32];
        snprintf(text, sizeof text, "message %zu", i);
        assert_string_equal(c.messages[i].text, text);
    }
    conversation_free(&c);
    assert_ok(&f, doctor_examine(home, s, &report, &f.err));
    for (size_t i = 0; i < report.n; i++)
        if (!report.items[i].ok) fail_msg("%s", report.items[i].detail);
    doctor_report_free(&report);
    s->key = NULL;
    session_unref(s);
    store_close(st);
}

static void test_power_cuts(void **state)
{
    (void)state;
    enum { MESSAGES = 120 };
    size_t saved_at[MESSAGES]; /* number of deeds when a message was told to be saved */
    int64_t talk = 0;
    unsigned seed = 7;
    install_layer();
    fixture_open(&f);
    session *s = fixture_user(&f, "mira", "correct horse");
    assert_ok(&f, conversation_create(s, 0, "t", &talk, &f.err));
    /* from a state that is all in the main file */
    store_scrub(f.store);
    disk_file start[2] = {{{0}, false}, {{0}, false}};
    char *copy = path_join(f.folder, "copy.db"), *place = path_join(f.folder, "place");
    char *path = path_join(place, "preft.db"), *wal = path_join(place, "preft.db-wal");
    char *live = path_join(f.home, "preft.db");
    char *command = xasprintf("cp '%s' '%s'", live, copy); /* another process: our locks stay */
    assert_int_equal(system(command), 0);
    read_disk(&start[0], copy);
    noting = true;
    for (size_t i = 0; i < MESSAGES; i++) {
        char text[32];
        snprintf(text, sizeof text, "message %zu", i);
        fixture_message(s, talk, HISTORY_USER, text);
        saved_at[i] = n_deeds;
        /* checkpoints fall into it, too */
        if (i % 25 == 24) store_scrub(f.store);
    }
    noting = false;
    assert_int_equal(mkdir(place, 0700), 0);
    for (int round = 0; round < CUTS; round++) {
        size_t cut = (size_t)rand_r(&seed) % n_deeds, confirmed = 0;
        disk_file disk[2] = {{{0}, true}, {{0}, false}};
        while (confirmed < MESSAGES && saved_at[confirmed] <= cut)
            confirmed++;
        buf_append(&disk[0].content, start[0].content.data, start[0].content.len);
        play(disk, cut, &seed);
        assert_ok(&f,
                  file_write_atomic(path, disk[0].content.data, disk[0].content.len, 0600, &f.err));
        if (disk[1].there && disk[1].content.len > 0)
            assert_ok(&f, file_write_atomic(wal, disk[1].content.data, disk[1].content.len, 0600,
                                            &f.err));
        check_store(place, s->key, s, talk, confirmed);
        char *clear = xasprintf("rm -f '%s'/preft.db*", place);
        assert_int_equal(system(clear), 0);
        free(clear);
        buf_free(&disk[0].content);
        buf_free(&disk[1].content);
    }
    for (size_t i = 0; i < n_deeds; i++)
        free(deeds[i].data);
    free(deeds);
    buf_free(&start[0].content);
    free(command);
    free(live);
    free(copy);
    free(place);
    free(path);
    free(wal);
    session_unref(s);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_power_cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
