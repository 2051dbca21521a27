<?php
// Renders a post: each line is trimmed as in the post-mortem (regex), or with the function for it (rtrim).
$line = "-- play happy sound for player to enjoy" . str_repeat(" ", (int) ($_GET["spaces"] ?? 0)) . "x";
for ($i = 0; $i < 2; $i++) {
    $text = $_GET["by"] === "regex" ? preg_replace('/^[\s\x{200c}]+|[\s\x{200c}]+$/u', "", $line) : trim($line);
}
foreach (range(1, 200) as $n) {
    echo "<p>", $n, "</p>\n";
}
echo strlen($text), "\n";
