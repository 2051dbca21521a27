package evidence

import "strings"

// Bounds are the settings that bound what a well-known program does at once, as its manual names them. A field is
// empty if the program has no such setting.
type Bounds struct {
	Serves string // how many requests or clients it serves
	Asks   string // how many connections it has to one server it asks
}

// bounds maps names of programs to their settings, with where these are documented.
var bounds = map[string]Bounds{
	// configuration.txt, 3.2, 4.2 and 5.2
	"haproxy": {Serves: "maxconn of global and of the frontend", Asks: "maxconn of the server line"},
	// https://www.pgbouncer.org/config.html
	"pgbouncer": {Serves: "max_client_conn", Asks: "default_pool_size (and pool_size of the database)"},
	// https://www.pgpool.net/docs/latest/en/html/runtime-config-connection.html
	"pgpool": {Serves: "num_init_children", Asks: "num_init_children"},
	// ngx_http_upstream_module, ngx_core_module
	"nginx": {
		Serves: "worker_connections (of each worker, with those to upstreams)",
		Asks:   "max_conns of the upstream's server line",
	},
	// config.cluster.v3.CircuitBreakers
	"envoy": {Asks: "max_connections of the cluster's circuit breakers"},
	// varnishd(1), vcl-backend(7)
	"varnishd":   {Serves: "thread_pool_max", Asks: ".max_connections of the backend"},
	"cache-main": {Serves: "thread_pool_max", Asks: ".max_connections of the backend"},
	// mod_mpm, mod_proxy
	"apache": {Serves: "MaxRequestWorkers (with ServerLimit)", Asks: "max= of ProxyPass"},
	"httpd":  {Serves: "MaxRequestWorkers (with ServerLimit)", Asks: "max= of ProxyPass"},
	// https://www.php.net/manual/en/install.fpm.configuration.php
	"php-fpm": {Serves: "pm.max_children"},
	// https://docs.gunicorn.org/en/stable/settings.html
	"gunicorn": {Serves: "workers and threads"},
	// https://uwsgi-docs.readthedocs.io/en/latest/Options.html
	"uwsgi": {Serves: "processes and threads"},
	// https://mariadb.com/kb/en/thread-pool-system-status-variables/
	"mariadbd": {Serves: "thread_pool_max_threads (with thread_handling=pool-of-threads) and max_connections"},
	"mysqld":   {Serves: "max_connections"},
	// https://www.postgresql.org/docs/current/runtime-config-connection.html
	"postgres": {Serves: "max_connections, or a pooler in front (pgbouncer)"},
	// redis.conf
	"redis-server":  {Serves: "maxclients, and the limit of open files"},
	"valkey-server": {Serves: "maxclients, and the limit of open files"},
	// memcached(1)
	"memcached": {Serves: "-c, the number of connections"},
}

// BoundsOf returns the settings of a program by the name of its process, without a version at its end.
func BoundsOf(program string) Bounds { return bounds[strings.TrimRight(program, "0123456789.")] }
