/* The whole interface on a screen in memory, for tests: keys in, text of the screen out. */
#ifndef TESTS_SUPPORT_WINDOW_FIXTURE_H
#define TESTS_SUPPORT_WINDOW_FIXTURE_H

#include "ui/window.h"

void window_press(app *a, key_code key);
void window_type(app *a, const char *text);
void window_paste(app *a, const char *text);
/* Takes events until nothing is under way. */
void window_settle(app *a);
/* Draws and checks (see below), then fails the test unless the screen has, or lacks, a text. Line
 * ends and borders between words are kept: expect what stands in one line. */
void window_expect(app *a, const char *text);
void window_reject(app *a, const char *text);

/* What must hold of every picture, after app_draw: in every row the widths of the cells add up to
 * its columns; a cell holds one cluster of its width, without control characters, and a wide one
 * has its other half; the cursor is inside the pane that has the keys. */
void window_check_picture(const app *a);
/* Every pane that is shown draws nothing outside its place. Draws on a screen of its own. */
void window_check_places(app *a);
/* No pane shows text when another person than owner, or nobody, is signed in there. */
void window_check_privacy(app *a, const char *owner, const char *text);

#endif
