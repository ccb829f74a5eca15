;;; walk.el --- Walks through a crash in Emacs  -*- lexical-binding: t -*-

;; The client is dap-mode, as Debian packages it.  What is typed goes into its REPL; what must follow is the line at which the
;; cursor then stands in the source.

(setq user-emacs-directory (file-name-as-directory (getenv "BACKTRAIL_HOME")))
(package-initialize)
(require 'dap-mode)
(require 'dap-ui)

(defvar walk-folder (file-name-as-directory (getenv "BACKTRAIL_WORKSPACE")))
(defvar walk-patience 60 "How many seconds anything may take.")

(defun walk-line-of (text)
  "The line of the program that holds TEXT."
  (with-temp-buffer
    (insert-file-contents (expand-file-name "bakery.c" walk-folder))
    (search-forward text)
    (line-number-at-pos)))

(defun walk-here ()
  "The source line at which the cursor stands."
  (let ((buffer (get-file-buffer (expand-file-name "bakery.c" walk-folder))))
    (and buffer (with-current-buffer buffer (line-number-at-pos)))))

(defun walk-until (what predicate)
  "Let the adapter talk until PREDICATE holds; WHAT is waited for."
  (with-timeout (walk-patience (error "%s: not after %d s; line %s" what walk-patience (walk-here)))
    (while (not (funcall predicate))
      (accept-process-output nil 0.05)))
  (message "%s" what))

(defun walk-at (text)
  "Wait until the cursor stands at the line that holds TEXT."
  (let ((line (walk-line-of text)))
    (walk-until (format "at line %d: %s" line text) (lambda () (eql (walk-here) line)))))

(defun walk-said (text)
  "Wait until the REPL shows TEXT."
  (walk-until (format "said: %s" text)
              (lambda ()
                (with-current-buffer dap-ui--repl-buffer
                  (string-search text (buffer-string))))))

(defun walk-type (command)
  "Type COMMAND into the REPL."
  (dap-ui-repl)
  (with-current-buffer dap-ui--repl-buffer
    (goto-char (point-max))
    (insert command)
    (comint-send-input)))

(dap-start-debugging-noexpand
 (list :type "backtrail" :request "launch" :name "Bakery"
       :dap-server-path (list (getenv "BACKTRAIL_BIN") "dap")
       :cwd walk-folder
       :bundle (expand-file-name "crash.bundle" walk-folder)))
(walk-at "int total = bread->price")
(walk-type "reverse-next 2")
(walk-at "= list[order->bread]")
(walk-type "reverse-step")
(walk-at "sum += serve(")
(walk-type "break strike")
(walk-said "Breakpoint 1")
(walk-type "reverse-continue")
(walk-at "list[bread] = NULL;")
(walk-type "goto crash")
(walk-at "int total = bread->price")
(walk-type "print *order")
(walk-said "{bread = 2, count = 4}")
;; The client's own verbs go forward; there is nothing after the crash.
(walk-type "reverse-next 3")
(walk-at "sum += serve(")
(dap-step-in (dap--cur-session))
(walk-at "= list[order->bread]")
(dap-continue (dap--cur-session) (dap--debug-session-thread-id (dap--cur-session)))
(walk-at "int total = bread->price")
(dap-disconnect (dap--cur-session))
(message "walked")

;;; walk.el ends here
