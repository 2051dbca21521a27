package shop.startup;

import java.util.function.LongUnaryOperator;
import org.springframework.asm.ClassWriter;
import org.springframework.asm.Label;
import org.springframework.asm.MethodVisitor;
import org.springframework.asm.Opcodes;
import shop.Load;

/**
 * A service that has just started, with a rule for each of 1500 tenants: the first orders of each find its rule
 * interpreted, and the compilers at work, for an order runs a small part of a rule, while the compilers take all of it.
 * Cured: it calls each rule until it is compiled before it says that it is ready. The rules are written as bytecode
 * here, each with constants of its own.
 */
public final class WarmUp {
    private static final int RULES = 1500;
    /** Orders in a request. */
    private static final long ORDERS = 60;
    /** Requests of a tenant in a row: 12,000 orders, after which C2 compiles the rule (it waits for 5000, and takes 8 ms). */
    private static final long REQUESTS = 200;
    /** Kinds of order that a rule knows, with code of its own for each. */
    private static final int KINDS = 60;
    /** Operations of the code for one kind; with 60 kinds a method stays below HugeMethodLimit, 8000 bytes (globals.hpp). */
    private static final int OPERATIONS = 10;
    /** Milliseconds of compilation in a round of calls that are worth another round: a hundredth of what all rules take. */
    private static final long COMPILED = 100;
    /** More than C2 waits for: Tier4InvocationThreshold, 5000 (compiler_globals.hpp). */
    private static final int WARM_CALLS = 10_000;

    private static final class Loader extends ClassLoader {
        LongUnaryOperator define(String name, byte[] code) throws ReflectiveOperationException {
            Class<?> type = defineClass(name.replace('/', '.'), code, 0, code.length);
            return (LongUnaryOperator) type.getDeclaredConstructor().newInstance();
        }
    }

    public static void main(String[] args) throws Exception {
        boolean sick = Load.sick(args);
        LongUnaryOperator[] rules = new LongUnaryOperator[RULES];
        Loader loader = new Loader();
        for (int i = 0; i < RULES; i++) {
            rules[i] = loader.define("shop/startup/Rule" + i, rule("shop/startup/Rule" + i, i));
        }
        if (!sick) {
            warm(rules);
        }
        try (java.net.ServerSocket ready = new java.net.ServerSocket(8080)) {
            Load.run("web", 2, n -> Load.sink += handle(rules, n));
            Thread.currentThread().join();
        }
    }

    private static long handle(LongUnaryOperator[] rules, long n) {
        LongUnaryOperator rule = rules[(int) (n / REQUESTS % RULES)];
        long sum = 0;
        for (long order = n * ORDERS; order < (n + 1) * ORDERS; order++) {
            sum += rule.applyAsLong(order);
        }
        return sum;
    }

    /** Calls until nothing is left to compile: with a long queue HotSpot postpones, so once is not enough. */
    private static void warm(LongUnaryOperator[] rules) throws InterruptedException {
        for (long before = -COMPILED; compileMillis() - before >= COMPILED; ) {
            before = compileMillis();
            for (LongUnaryOperator rule : rules) {
                for (int call = 0; call < WARM_CALLS; call++) {
                    Load.sink += rule.applyAsLong(call);
                }
            }
            waitForCompilers();
        }
    }

    private static void waitForCompilers() throws InterruptedException {
        for (long before = -1; compileMillis() != before; ) {
            before = compileMillis();
            Thread.sleep(500);
        }
    }

    private static long compileMillis() {
        return java.lang.management.ManagementFactory.getCompilationMXBean().getTotalCompilationTime();
    }

    /** A class with the method applyAsLong(x): a switch over the kinds, each with a dozen operations on constants of its own. */
    private static byte[] rule(String name, int seed) {
        ClassWriter c = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        // Java 5, which needs no stack maps.
        String[] interfaces = {"java/util/function/LongUnaryOperator"};
        c.visit(Opcodes.V1_5, Opcodes.ACC_PUBLIC, name, null, "java/lang/Object", interfaces);
        MethodVisitor m = c.visitMethod(Opcodes.ACC_PUBLIC, "<init>", "()V", null, null);
        m.visitCode();
        m.visitVarInsn(Opcodes.ALOAD, 0);
        m.visitMethodInsn(Opcodes.INVOKESPECIAL, "java/lang/Object", "<init>", "()V", false);
        m.visitInsn(Opcodes.RETURN);
        m.visitMaxs(0, 0);
        m.visitEnd();
        m = c.visitMethod(Opcodes.ACC_PUBLIC, "applyAsLong", "(J)J", null, null);
        m.visitCode();
        Label end = new Label();
        Label[] kinds = new Label[KINDS];
        java.util.Arrays.setAll(kinds, k -> new Label());
        m.visitVarInsn(Opcodes.LLOAD, 1);
        m.visitLdcInsn((long) KINDS);
        m.visitInsn(Opcodes.LREM);
        m.visitInsn(Opcodes.L2I);
        m.visitTableSwitchInsn(0, KINDS - 1, end, kinds);
        for (int k = 0; k < KINDS; k++) {
            m.visitLabel(kinds[k]);
            operations(m, seed * 31L + k * 7L);
            m.visitJumpInsn(Opcodes.GOTO, end);
        }
        m.visitLabel(end);
        m.visitVarInsn(Opcodes.LLOAD, 1);
        m.visitInsn(Opcodes.LRETURN);
        m.visitMaxs(0, 0);
        m.visitEnd();
        c.visitEnd();
        return c.toByteArray();
    }

    private static void operations(MethodVisitor m, long constant) {
        for (int i = 0; i < OPERATIONS; i++) {
            m.visitVarInsn(Opcodes.LLOAD, 1);
            m.visitLdcInsn((constant + i) | 1);
            m.visitInsn(i % 3 == 0 ? Opcodes.LMUL : i % 3 == 1 ? Opcodes.LXOR : Opcodes.LADD);
            m.visitInsn(Opcodes.DUP2);
            m.visitIntInsn(Opcodes.BIPUSH, 7 + i);
            m.visitInsn(Opcodes.LUSHR);
            m.visitInsn(Opcodes.LXOR);
            m.visitVarInsn(Opcodes.LSTORE, 1);
        }
    }
}
