/* What the operating system said about a file or a folder, as an error for a person: what cannot be done with which name, why, and
 * below it what mends it: the name that was probably meant, what is missing of the path, a right, room on the disk.
 *
 *     int file = open(path, O_RDONLY | O_CLOEXEC);
 *     if (file < 0)
 *         return td_file_error(path, "open", errno);
 *
 * Its code says whose mistake it is, and so which exit code the program has. The name's: there is none of it (TD_NOT_FOUND), it
 * is of the wrong kind, or this user has no right to it (TD_INVALID_ARGUMENT). Anything else: TD_IO. */
#ifndef TANDEM_BASE_FILE_ERROR_H
#define TANDEM_BASE_FILE_ERROR_H

#include "tandem/status.h"

/* `verb` follows "cannot". `error` is errno's; 0 stands for ENOMEM (zlib's way to say so). */
td_status *td_file_error(const char *path, const char *verb, int error) TD_MUST_USE;

#endif
