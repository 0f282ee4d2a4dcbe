/* fuzzy: fuzzy matching of names. */
#ifndef PF_UI_FUZZY_H
#define PF_UI_FUZZY_H

/* How well text fits pattern: negative = not at all, else the higher the better. Every word of the
 * pattern (separated by blanks) has to be found, its letters in order; letters that follow each
 * other, that begin words and that come early count more. ASCII letters match in both cases. An
 * empty pattern fits everything with 0. */
int fuzzy_score(const char *pattern, const char *text);

#endif
